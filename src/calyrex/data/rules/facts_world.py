"""Facts about countries, sciences and the calendar that questions are made of, one a line."""

# country | continent | capital | a main language; where the name of a capital differs between languages,
# it stands as English/French/Spanish/German
COUNTRIES = """
Argentina|South America|Buenos Aires|Spanish
Australia|Oceania|Canberra|English
Austria|Europe|Vienna/Vienne/Viena/Wien|German
Bangladesh|Asia|Dhaka/Dacca/Daca/Dhaka|Bengali
Belgium|Europe|Brussels/Bruxelles/Bruselas/Brüssel|-
Bolivia|South America|-|Spanish
Botswana|Africa|Gaborone|-
Brazil|South America|Brasilia|Portuguese
Bulgaria|Europe|Sofia/Sofia/Sofía/Sofia|Bulgarian
Canada|North America|Ottawa|-
Chile|South America|Santiago|Spanish
China|Asia|Beijing/Pékin/Pekín/Peking|Chinese
Colombia|South America|Bogota/Bogota/Bogotá/Bogotá|Spanish
Croatia|Europe|Zagreb|Croatian
Cuba|North America|Havana/La Havane/La Habana/Havanna|Spanish
Denmark|Europe|Copenhagen/Copenhague/Copenhague/Kopenhagen|Danish
Ecuador|South America|Quito|Spanish
Egypt|Africa|Cairo/Le Caire/El Cairo/Kairo|Arabic
Estonia|Europe|Tallinn|Estonian
Ethiopia|Africa|Addis Ababa/Addis-Abeba/Adís Abeba/Addis Abeba|-
Finland|Europe|Helsinki|Finnish
France|Europe|Paris/Paris/París/Paris|French
Germany|Europe|Berlin/Berlin/Berlín/Berlin|German
Ghana|Africa|Accra|English
Greece|Europe|Athens/Athènes/Atenas/Athen|Greek
Guatemala|North America|Guatemala City|Spanish
Hungary|Europe|Budapest|Hungarian
Iceland|Europe|Reykjavik|Icelandic
India|Asia|New Delhi/New Delhi/Nueva Delhi/Neu-Delhi|-
Indonesia|Asia|-|Indonesian
Iran|Asia|Tehran/Téhéran/Teherán/Teheran|Persian
Iraq|Asia|Baghdad/Bagdad/Bagdad/Bagdad|Arabic
Ireland|Europe|Dublin|English
Italy|Europe|Rome/Rome/Roma/Rom|Italian
Jamaica|North America|Kingston|English
Japan|Asia|Tokyo/Tokyo/Tokio/Tokio|Japanese
Jordan|Asia|Amman|Arabic
Kenya|Africa|Nairobi|-
Latvia|Europe|Riga|Latvian
Libya|Africa|Tripoli/Tripoli/Trípoli/Tripolis|Arabic
Lithuania|Europe|Vilnius|Lithuanian
Madagascar|Africa|Antananarivo|Malagasy
Mexico|North America|Mexico City/Mexico/Ciudad de México/Mexiko-Stadt|Spanish
Mongolia|Asia|-|Mongolian
Morocco|Africa|Rabat|Arabic
Mozambique|Africa|Maputo|Portuguese
Nepal|Asia|Kathmandu/Katmandou/Katmandú/Kathmandu|Nepali
New Zealand|Oceania|Wellington|English
Nigeria|Africa|Abuja|English
Norway|Europe|Oslo|Norwegian
Pakistan|Asia|Islamabad|Urdu
Panama|North America|Panama City|Spanish
Paraguay|South America|Asuncion/Asuncion/Asunción/Asunción|-
Peru|South America|Lima|Spanish
Poland|Europe|Warsaw/Varsovie/Varsovia/Warschau|Polish
Portugal|Europe|Lisbon/Lisbonne/Lisboa/Lissabon|Portuguese
Qatar|Asia|Doha|Arabic
Romania|Europe|Bucharest/Bucarest/Bucarest/Bukarest|Romanian
Senegal|Africa|Dakar|French
Serbia|Europe|Belgrade/Belgrade/Belgrado/Belgrad|Serbian
Slovakia|Europe|Bratislava|Slovak
Slovenia|Europe|Ljubljana|Slovene
South Korea|Asia|Seoul/Séoul/Seúl/Seoul|Korean
Spain|Europe|Madrid|Spanish
Sudan|Africa|Khartoum/Khartoum/Jartum/Khartum|Arabic
Sweden|Europe|Stockholm/Stockholm/Estocolmo/Stockholm|Swedish
Switzerland|Europe|Bern/Berne/Berna/Bern|-
Syria|Asia|Damascus/Damas/Damasco/Damaskus|Arabic
Thailand|Asia|Bangkok|Thai
Tunisia|Africa|Tunis/Tunis/Túnez/Tunis|Arabic
Turkey|Asia|Ankara|Turkish
Uganda|Africa|Kampala|-
Ukraine|Europe|Kyiv/Kiev/Kiev/Kiew|Ukrainian
Uruguay|South America|Montevideo|Spanish
Venezuela|South America|Caracas|Spanish
Vietnam|Asia|Hanoi/Hanoï/Hanói/Hanoi|Vietnamese
Zambia|Africa|Lusaka|English
Zimbabwe|Africa|Harare|-
"""

# continent | where it is, in French, Spanish and German
CONTINENTS = """
Africa|C'est en Afrique.|Está en África.|Das liegt in Afrika.
Asia|C'est en Asie.|Está en Asia.|Das liegt in Asien.
Europe|C'est en Europe.|Está en Europa.|Das liegt in Europa.
North America|C'est en Amérique du Nord.|Está en América del Norte.|Das liegt in Nordamerika.
Oceania|C'est en Océanie.|Está en Oceanía.|Das liegt in Ozeanien.
South America|C'est en Amérique du Sud.|Está en América del Sur.|Das liegt in Südamerika.
"""

# English | French | Spanish | German, in the order of the year
MONTHS = """
January|janvier|enero|Januar
February|février|febrero|Februar
March|mars|marzo|März
April|avril|abril|April
May|mai|mayo|Mai
June|juin|junio|Juni
July|juillet|julio|Juli
August|août|agosto|August
September|septembre|septiembre|September
October|octobre|octubre|Oktober
November|novembre|noviembre|November
December|décembre|diciembre|Dezember
"""

# English | French | Spanish | German, in the order of the week
WEEKDAYS = """
Monday|lundi|lunes|Montag
Tuesday|mardi|martes|Dienstag
Wednesday|mercredi|miércoles|Mittwoch
Thursday|jeudi|jueves|Donnerstag
Friday|vendredi|viernes|Freitag
Saturday|samedi|sábado|Samstag
Sunday|dimanche|domingo|Sonntag
"""

# element | chemical symbol
ELEMENTS = """
aluminum|Al
argon|Ar
calcium|Ca
carbon|C
chlorine|Cl
copper|Cu
gold|Au
helium|He
hydrogen|H
iron|Fe
lead|Pb
lithium|Li
magnesium|Mg
mercury|Hg
neon|Ne
nitrogen|N
oxygen|O
potassium|K
silver|Ag
sodium|Na
sulfur|S
tin|Sn
uranium|U
zinc|Zn
"""

# country | currency
CURRENCIES = """
Argentina|peso
Australia|dollar
Brazil|real
Canada|dollar
Chile|peso
China|yuan
Colombia|peso
Denmark|krone
Egypt|pound
France|euro
Germany|euro
Hungary|forint
India|rupee
Indonesia|rupiah
Israel|shekel
Italy|euro
Japan|yen
Kenya|shilling
Malaysia|ringgit
Mexico|peso
Morocco|dirham
Nigeria|naira
Norway|krone
Pakistan|rupee
Poland|zloty
Russia|ruble
South Africa|rand
South Korea|won
Spain|euro
Sweden|krona
Switzerland|franc
Thailand|baht
Turkey|lira
Ukraine|hryvnia
Vietnam|dong
"""

# work | author
BOOKS = """
Hamlet|William Shakespeare
Macbeth|William Shakespeare
Emma|Jane Austen
Persuasion|Jane Austen
Oliver Twist|Charles Dickens
David Copperfield|Charles Dickens
Frankenstein|Mary Shelley
Dracula|Bram Stoker
Moby-Dick|Herman Melville
Jane Eyre|Charlotte Bronte
Wuthering Heights|Emily Bronte
Don Quixote|Miguel de Cervantes
Faust|Johann Wolfgang von Goethe
War and Peace|Leo Tolstoy
Anna Karenina|Leo Tolstoy
Crime and Punishment|Fyodor Dostoevsky
Les Miserables|Victor Hugo
Middlemarch|George Eliot
The Odyssey|Homer
The Aeneid|Virgil
Candide|Voltaire
Treasure Island|Robert Louis Stevenson
Robinson Crusoe|Daniel Defoe
"""
